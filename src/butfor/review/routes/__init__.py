"""The review as a web app: pages for people and a JSON API for programs.

A page is the HTML of a view and its API counterpart is the same view as JSON, so both show and hide
the same things: which stays are controls or repeats, what others said before the reviewer's own
verdict, what the model says before the first impression, and all overviews before the reviewer's
queue is done.
"""
