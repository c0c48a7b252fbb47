"""The composition root: the only room that knows every other one. `console` is the program as a process."""
