.PHONY: demo docs test

demo:
	@scripts/demo

docs:
	@scripts/docs

test:
	@scripts/test
