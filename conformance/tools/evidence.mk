# What proves the project beside its tests: coverage. Included by ../../Makefile.
ifeq ($(VARIANT),cov)
# See coverage_hooks.c: the counters of workers and caged engines find their way out.
$(B)/bin/ol: $(B)/obj/conformance/tools/coverage_hooks.o
$(B)/bin/ol: private ld += -Wl,--wrap=_exit,--wrap=ol_dir_remove,--wrap=execve
$(B)/bin/ol-host: $(B)/obj/conformance/tools/coverage_host.o
# Only the engine has threads, whose counters need atomic steps; the judge's then take a third of the time.
$(B)/obj/conformance/%.o: private cc += -fprofile-update=single
endif

# The judge's own unit tests with the variant's objects; conformance/selftest/run.sh builds them by itself.
JUDGE_TESTS := $(patsubst conformance/selftest/%.c,$(B)/bin/tests/%,$(wildcard conformance/selftest/test_*.c))
$(JUDGE_TESTS): $(B)/bin/tests/%: $(B)/obj/conformance/selftest/%.o $(filter-out %/main.o,$(JUDGE_OBJ))
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ -lcmocka -ljansson -lseccomp -lm

.PHONY: coverage judge-tests
judge-tests: $(JUDGE_TESTS)
## what the tests reach: build/coverage/ (HTML, Cobertura, JSON, Markdown), held to conformance/coverage.json
coverage: build/deps.judge build/deps.check
	@$(PYTHON) conformance/tools/coverage.py

.PHONY: judge-asan
## the judge's own tests with `ol` under ASan and UBSan; host and library are plain, so that the cage is the usual one;
## HOSTILE_MODES=all: the hostile engines as a user and on a bare kernel, too
judge-asan: build/deps.judge
	@$(MAKE) -s VARIANT=release all
	@$(MAKE) -s VARIANT=asan build/asan/bin/ol
	@mkdir -p build/judge-asan/bin build/judge-asan/lib
	@cp build/asan/bin/ol build/release/bin/ol-host build/judge-asan/bin/
	@cp -P build/release/lib/* build/judge-asan/lib/
	@BUILD=build/judge-asan HOSTILE_MODES=$(or $(HOSTILE_MODES),one) bash conformance/selftest/run.sh
