"""The admin address: rollouts as JSON, and operators' decisions."""
