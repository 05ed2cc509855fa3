"""Parts that tests of all folders share."""
