"""The admin address: JSON about rollouts, and operators' decisions."""
