"""The event engine: ``state`` says what there is, ``loop`` what happens, ``pool_run`` runs it."""
