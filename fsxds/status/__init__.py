"""The status of the server as values: who is served what, and what is wrong; made when it is asked for."""
