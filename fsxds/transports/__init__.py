"""How clients are told: each module serves the store over one wire."""
