"""Building and describing data sets."""
