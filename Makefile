.PHONY: demo test setup check docs lock fuzz grammars clients agents clean

demo: ## serve the built-in model on 127.0.0.1:8000; more flags in ARGS
	@scripts/setup
	@exec .venv/bin/vllm-mlx serve demo $(ARGS)

test: ## lint, types, generated docs and every test
	@scripts/setup dev
	@scripts/check
	@scripts/test

setup: ## .venv with everything to run and to test
	@scripts/setup dev

check: setup ## lint, types, generated docs
	@scripts/check

docs: setup ## write the generated tables of docs/ again
	@.venv/bin/python scripts/docs.py
	@.venv/bin/python scripts/conformance.py

fuzz: setup ## the property tests with big numbers, and five minutes of requests to every route
	@VLLM_MLX_FUZZ=200000 scripts/test tests/properties
	@VLLM_MLX_FUZZ_SECONDS=300 scripts/test -rP tests/api/test_fuzz.py

grammars: setup ## calls drawn at random in every format: each is valid
	@.venv/bin/python scripts/prove_grammars.py $(ARGS)

lock: ## write the lock files again from pyproject.toml (needs uv)
	@scripts/lock

clients: setup ## client libraries, each in its own environment: an agent turn, a cut call (needs the network)
	@.venv/bin/python scripts/clients/run.py $(ARGS)

agents: setup ## coding agents, headless: a task with a shell tool (needs the network)
	@.venv/bin/python scripts/agents/run.py $(ARGS)

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
