"""The experiment of Oberst and Sontag (2019), repeated."""
