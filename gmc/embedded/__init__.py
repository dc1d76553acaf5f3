"""The tiny language model that ships in the package (`model/`), and the script that made it."""
