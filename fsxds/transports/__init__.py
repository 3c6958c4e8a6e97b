"""How clients are served: each package sends what is current over one transport."""
