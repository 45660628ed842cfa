# One front door. `make judge` judges the project's own engine; `make check` runs everything that proves the
# project; `make help` lists the rest. All output goes to build/<variant>/, so two variants never meet.

MAKEFLAGS += -r --no-print-directory
.DELETE_ON_ERROR:
.SECONDARY:
SHELL := /bin/bash
VARIANT ?= release
V ?= 0
B := build/$(VARIANT)
PREFIX ?= /usr/local
PYTHON ?= /usr/bin/python3
# Checks list the files by git, which refuses a clone of another user's: a folder mounted into a container.
export GIT_CONFIG_COUNT := 1
export GIT_CONFIG_KEY_0 := safe.directory
export GIT_CONFIG_VALUE_0 := $(CURDIR)
ifeq ($(V),0)
say = @printf '  %-7s %s\n' '$(1)' '$(2)';
quiet = @
endif

# ---------------------------------------------------------------- variants
common := -std=c11 -D_POSIX_C_SOURCE=200809L -fPIC -fno-common -fvisibility=hidden -ffp-contract=off \
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes \
  -Wcast-qual -Wcast-align -Wpointer-arith -Wundef -Wvla -Wdouble-promotion
# Frames keep their pointer so that a crash in a sanitizer run shows its callers.
san := -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all
variant-release   := gcc   -O2 -g1 -DNDEBUG
variant-debug     := gcc   -O0 -g3
variant-clang     := clang -O2 -g1 -DNDEBUG
variant-v3        := gcc   -O3 -g1 -DNDEBUG -march=x86-64-v3
variant-nofma     := gcc   -O2 -g1 -DNDEBUG -mno-fma
variant-asan      := gcc   $(san) -fsanitize=address,undefined
variant-clangasan := clang $(san) -fsanitize=address,undefined
variant-tsan      := gcc   $(san) -fsanitize=thread
variant-msan      := clang $(san) -fsanitize=memory
variant-cov       := gcc   -O0 -g --coverage -fprofile-update=atomic
# Its workers only block: under Valgrind one thread runs at a time, and one that spins keeps it from the others.
variant-valgrind  := gcc   -O1 -g -DTLI_SPINS=0u
recipe := $(variant-$(VARIANT))
ifeq ($(recipe),)
$(error unknown VARIANT=$(VARIANT): use one of $(patsubst variant-%,%,$(filter variant-%,$(.VARIABLES))))
endif
ifeq ($(origin CC),default)
CC := $(firstword $(recipe))
endif
flags := $(wordlist 2,99,$(recipe))
WERROR ?= 0
ifeq ($(WERROR),1)
common += -Werror
endif
stamp := $(B)/flags
cc := $(CC) $(common) $(flags) $(CFLAGS)
ld := $(CC) $(filter -f% --coverage -g% -O%,$(flags)) $(CFLAGS) $(LDFLAGS)

# ---------------------------------------------------------------- sources
include engine/engine.mk
include conformance/conformance.mk
include conformance/tools/evidence.mk
-include mutants/mutants.mk
-include fuzz/fuzz.mk

.DEFAULT_GOAL := all
.PHONY: all
## the library, ol and its host, the bench and the example, in VARIANT
all: $(ENGINE_LIBS) $(B)/bin/ol $(B)/bin/ol-host $(B)/lib/libtl-second.so $(B)/bin/tl-bench $(B)/bin/tl-hello

# ---------------------------------------------------------------- objects
# Compiler and flags are a file that every object depends on: changed flags rebuild that variant, and only it.
$(stamp): build/deps.judge FORCE
	@mkdir -p $(@D); printf '%s\n' '$(cc)' '$(ld)' | cmp -s - $@ || printf '%s\n' '$(cc)' '$(ld)' > $@
.PHONY: FORCE
FORCE:

$(B)/obj/engine/%.o: engine/%.c $(stamp)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(cc) -Iengine/include -Iengine/src -MMD -MP -c $< -o $@
$(B)/obj/conformance/%.o: conformance/%.c $(stamp)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(cc) $(JUDGE_CFLAGS) -MMD -MP -c $< -o $@
-include $(shell find build/$(VARIANT)/obj -name '*.d' 2>/dev/null)

# ---------------------------------------------------------------- dependencies
build/deps.%: conformance/tools/deps.sh
	@mkdir -p build
	@bash conformance/tools/deps.sh $* && touch $@
.PHONY: deps
## install every Debian package that the targets below use
deps:
	@bash conformance/tools/deps.sh judge check

# ---------------------------------------------------------------- the two lines of the README
.PHONY: judge check
## judge the project's own engine: 24 tests, a verdict each; the exit code is the verdict
judge: build/deps.judge
	@$(MAKE) -s all
	@$(B)/bin/ol check L10.1 -j 2

## everything that proves the project; ends with `N passed, N failed, N skipped`
check: build/deps.judge build/deps.check
	@$(PYTHON) conformance/tools/check.py

# ---------------------------------------------------------------- people
.PHONY: help clean format bench goldens check-exhaustive install
## this list
help:
	@awk '/^## /{s = s (s ? " " : "") substr($$0, 4); next} \
	  /^[a-z-]+:/{if (s) {sub(/:.*/, ""); printf "  %-18s %s\n", $$0, s}} {s = ""}' $(MAKEFILE_LIST)
	@echo; echo "  VARIANT=$(VARIANT) of: $(sort $(patsubst variant-%,%,$(filter variant-%,$(.VARIABLES))))"

## delete build/
clean:
	rm -rf build

.PHONY: lint
## clang-tidy and cppcheck over every C file
lint: build/deps.check
	@bash conformance/tools/lint.sh

## clang-format over every C file
format: build/deps.check
	clang-format -i $$(git ls-files -c -o --exclude-standard '*.c' '*.h')

## speed of this machine and of the engine on it, as ratios: prefill, decode
bench: all
	$(B)/bin/tl-bench $(BENCH)

## make every golden again (needs a Python with goldens/gen/requirements.txt: PYTHON=...)
goldens:
	$(PYTHON) goldens/gen/all.py

## what takes long: sweeps over all 2^32 arguments
check-exhaustive: $(EXHAUSTIVE)
	set -e; for t in $(EXHAUSTIVE); do $$t; done

## install library, headers and pkg-config file below PREFIX (and DESTDIR)
install: $(ENGINE_LIBS)
	install -d $(DESTDIR)$(PREFIX)/include/tl $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 644 engine/include/tl/*.h $(DESTDIR)$(PREFIX)/include/tl/
	install -m 644 $(B)/lib/libtl.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(B)/lib/libtl.so.$(ABI_MAJOR) $(DESTDIR)$(PREFIX)/lib/
	ln -sf libtl.so.$(ABI_MAJOR) $(DESTDIR)$(PREFIX)/lib/libtl.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' engine/libtl.pc.in \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/libtl.pc
