"""Pictures: what they show, curves and what an experiment asks for, drawn on paper."""
