# What proves the project beside its tests: coverage. Included by ../../Makefile.
ifeq ($(VARIANT),cov)
# See coverage_hooks.c: the counters of workers and caged engines find their way out.
$(B)/bin/ol: $(B)/obj/conformance/tools/coverage_hooks.o
$(B)/bin/ol: ld += -Wl,--wrap=_exit,--wrap=ol_dir_remove,--wrap=execve
$(B)/bin/ol-host: $(B)/obj/conformance/tools/coverage_host.o
endif

.PHONY: coverage
## what the tests reach: build/coverage/ (HTML, Cobertura, JSON, Markdown), held to conformance/coverage.json
coverage: build/deps.judge build/deps.check
	@$(PYTHON) conformance/tools/coverage.py
