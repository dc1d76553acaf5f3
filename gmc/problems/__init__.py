"""Problems: a question, its gold answer, and where both came from."""
