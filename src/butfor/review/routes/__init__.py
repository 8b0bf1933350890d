"""The review as a web app: pages for people and a JSON API for programs."""
