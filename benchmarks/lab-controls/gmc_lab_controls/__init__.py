"""Control arms for studies."""
