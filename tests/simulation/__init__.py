"""The publisher and the protocol cores against a fleet of simulated clients, in virtual time, from one seed."""
