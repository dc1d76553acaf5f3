"""Live mode: one trainer and any number of followers, on machines that share a folder, with nothing but files between them."""
