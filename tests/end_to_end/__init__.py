"""Real servers, real files, real Envoys."""
