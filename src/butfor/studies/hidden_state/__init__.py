"""The experiment of Oberst and Sontag (2019) with the hidden state in the model."""
