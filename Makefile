# The common jobs; `make help` lists them. CMake does the work (CMakePresets.json).
.DEFAULT_GOAL := build
.PHONY: help build test demo bench sanitize fuzz format clean

FUZZ_SECONDS ?= 60
MODEL ?= models/nano

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

build:  ## build the program: bin/dgem
	@scripts/install_packages.sh
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target dgem

test:  ## run every test: units, sanitizers, a few seconds of fuzzing
	@scripts/install_packages.sh --tests
	@scripts/test.sh

demo: build  ## read decisions about an example ticket with the small model
	bin/dgem read --model models/nano --prompt-file examples/ticket.txt --answer-file examples/ticket.answer

bench: build  ## measure the engine on this machine, with the small model or MODEL=DIR
	bin/dgem bench engine --model $(MODEL)

sanitize:  ## run the unit tests with the address, undefined behaviour and thread sanitizers
	@scripts/install_packages.sh --tests
	@scripts/sanitize.sh

fuzz:  ## fuzz each untrusted input for FUZZ_SECONDS (60)
	@scripts/install_packages.sh --tests
	@scripts/fuzz.sh $(FUZZ_SECONDS)

format:  ## format the sources with clang-format
	@scripts/install_packages.sh --format
	@find src fuzz -name '*.h' -o -name '*.cpp' | xargs clang-format -i

clean:  ## remove what was built
	rm -rf build bin
