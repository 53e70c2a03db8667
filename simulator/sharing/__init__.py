"""How fast jobs run on cores that they share: built-in models, or a user's (``model``)."""
