"""A policy out of its run: as a folder or a repository of the hub, with a model card that says how it was made."""
