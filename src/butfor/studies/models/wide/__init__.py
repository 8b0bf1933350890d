"""The part of the study with thirty variables, where states cannot be enumerated."""
