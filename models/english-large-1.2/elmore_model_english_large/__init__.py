"""The model english-large: elmore.load("english-large")."""
