"""Parts that tests of all folders share: waits, and requests as clients send them."""
