"""What the people who run fsxds see."""
