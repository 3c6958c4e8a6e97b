"""One module per `fsxds` subcommand, each a thin caller of the rooms."""
