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

# Another CPU under qemu-user, which does not know the calls of the cage: so a native `ol` judges an emulated host.
# Debian, as root: dpkg --add-architecture $(CPU); apt-get update; apt-get install qemu-user-static and for arm64
# gcc-aarch64-linux-gnu, for s390x gcc-s390x-linux-gnu; libc6-dev:$(CPU) and so on for what deps.sh names in `judge`.
CPU ?= arm64
QEMU ?= $(patsubst %-linux-gnu-gcc,qemu-%-static,$(firstword $(cross-$(CPU))))
cross-arm64 := aarch64-linux-gnu-gcc -O2 -g1 -DNDEBUG
cross-s390x := s390x-linux-gnu-gcc -O2 -g1 -DNDEBUG -fexcess-precision=fast
emulated := build/judge-$(CPU)
.PHONY: emulated
## the portable kernels on CPU=arm64 or s390x (big-endian), emulated: unit tests, then the 24 tests to the bit; what it
## needs: conformance/tools/evidence.mk
emulated: build/deps.judge
	$(if $(cross-$(CPU)),,$(error unknown CPU=$(CPU): use one of $(patsubst cross-%,%,$(filter cross-%,$(.VARIABLES)))))
	@$(MAKE) -s VARIANT=release all
	@$(MAKE) -s VARIANT=$(CPU) 'variant-$(CPU)=$(cross-$(CPU))' all engine-tests judge-tests
	@for t in $(notdir $(ENGINE_TESTS) $(JUDGE_TESTS)); do \
	  $(QEMU) build/$(CPU)/bin/tests/$$t >build/$(CPU)/$$t.log 2>&1 && echo "pass  $$t" || \
	  { cat build/$(CPU)/$$t.log; exit 1; }; done
	@mkdir -p $(emulated)/bin $(emulated)/lib
	@cp build/release/bin/ol build/$(CPU)/bin/ol-host $(emulated)/bin/
	@cp -P build/$(CPU)/lib/lib* $(emulated)/lib/
	@$(emulated)/bin/ol check L10.1 -j 2 --timeout 600 --wrap $(QEMU)
