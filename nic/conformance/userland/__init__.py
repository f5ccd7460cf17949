"""Programs, headers and libraries of other distributions, with the urxe that is built here."""
