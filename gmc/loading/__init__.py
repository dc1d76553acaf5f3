"""What a model must be before gmc samples from it or trains it; everything else is refused in one line."""
