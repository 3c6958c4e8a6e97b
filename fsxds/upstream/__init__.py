"""Other xDS servers as sources: what they are asked for, what each of them holds, and what they are told of it."""
