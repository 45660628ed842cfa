# What proves the project beside its tests: coverage. Included by ../../Makefile.
ifeq ($(VARIANT),cov)
# See coverage_hooks.c: the counters of workers and caged engines find their way out.
$(B)/bin/ol: $(B)/obj/conformance/tools/coverage_hooks.o
$(B)/bin/ol: ld += -Wl,--wrap=_exit,--wrap=ol_dir_remove,--wrap=execve
$(B)/bin/ol-host: $(B)/obj/conformance/tools/coverage_host.o
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
