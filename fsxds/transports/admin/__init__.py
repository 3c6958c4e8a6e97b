"""The admin address: what becomes of rollouts, and what an operator decides about them, as a JSON API."""
