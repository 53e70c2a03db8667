.PHONY: bench demo docs test

bench:
	@scripts/bench $(ARGS)

demo:
	@scripts/demo

docs:
	@scripts/docs

test:
	@scripts/test
