"""The admin address: a JSON API with the status of rollouts and the decisions of operators about them."""
