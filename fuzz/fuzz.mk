# Fuzz targets. Included by ../Makefile; see README.md.
#
# Every variant can build the replay program (no clang needed); VARIANT=fuzz, made by `make fuzz`, builds the
# libFuzzer programs. The second implementation is the one of conformance.mk: every global symbol of its objects gets
# the prefix second_, so that both can be in one program.
FUZZ_TARGETS := safetensors index config checkpoint kv_import kv_calls quant sampler forward golden frames log
FUZZ_VARIANT := clang -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all \
  -fsanitize=fuzzer-no-link,address,undefined

FUZZ_SRC := $(filter-out fuzz/libfuzzer.c fuzz/replay.c,$(wildcard fuzz/*.c))
FUZZ_OBJ := $(FUZZ_SRC:%.c=$(B)/obj/%.o)
# What the judge's targets link: all of `ol` but its main, and no test of its own.
FUZZ_JUDGE_OBJ := $(filter-out $(B)/obj/conformance/runner/main.o,$(JUDGE_OBJ)) $(B)/obj/conformance/host/load.o
FUZZ_LDLIBS ?= -lcmocka -lseccomp -ldl $(ENGINE_LDLIBS)
fuzz_ld ?= $(ld)
# As an archive, so that a target takes what it needs of the judge, which is nothing of its 24 tests.
$(B)/obj/fuzz/judge.a: $(FUZZ_JUDGE_OBJ)
	@mkdir -p $(@D)
	$(quiet)rm -f $@ && ar rcs $@ $^

$(B)/obj/fuzz/%.o: fuzz/%.c $(stamp)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(cc) $(JUDGE_CFLAGS) -Ifuzz -MMD -MP -c $< -o $@

SECOND_OBJ := $(SECOND_SRC:%.c=$(B)/obj/second/%.o)
$(B)/obj/second/symbols: fuzz/fuzz.mk $(SECOND_RAW)
	$(quiet)nm -g --defined-only $(SECOND_RAW) | awk 'NF == 3 && $$3 ~ /^(__odr_asan\.)?(tl|tli|plain)_/ {print $$3, "second_" $$3}' | sort -u > $@
$(SECOND_OBJ): $(B)/obj/second/%.o: $(B)/obj/second/raw/%.o $(B)/obj/second/symbols
	@mkdir -p $(@D)
	$(quiet)objcopy --redefine-syms=$(B)/obj/second/symbols $< $@

# The engine of the replay allocates through fuzz/memory.c.
$(B)/obj/fuzz/libtl.a: $(B)/lib/libtl.a fuzz/fuzz.mk
	$(quiet)objcopy $(foreach f,malloc calloc free,--redefine-sym $(f)=fuzz_$(f)) $< $@

$(B)/bin/fuzz-replay: $(B)/obj/fuzz/replay.o $(FUZZ_OBJ) $(SECOND_OBJ) $(B)/obj/fuzz/judge.a $(B)/obj/fuzz/libtl.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ $(FUZZ_LDLIBS)

$(B)/obj/fuzz/libfuzzer-%.o: fuzz/libfuzzer.c $(stamp)
	@mkdir -p $(@D)
	$(call say,CC,$< ($*))$(cc) $(JUDGE_CFLAGS) -Ifuzz -DFUZZ_TARGET=fuzz_$* -MMD -MP -c $< -o $@
LIB_FUZZING_ENGINE ?= -fsanitize=fuzzer
$(B)/bin/fuzz-%: $(B)/obj/fuzz/libfuzzer-%.o $(FUZZ_OBJ) $(SECOND_OBJ) $(B)/obj/fuzz/judge.a $(B)/lib/libtl.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(fuzz_ld) $(LIB_FUZZING_ENGINE) -o $@ $^ $(FUZZ_LDLIBS)

.PHONY: fuzz-programs fuzz-build fuzz fuzz-replay
fuzz-programs: $(FUZZ_TARGETS:%=$(B)/bin/fuzz-%) $(B)/bin/fuzz-crash
fuzz-build:
	@$(MAKE) VARIANT=fuzz 'variant-fuzz=$(FUZZ_VARIANT)' fuzz-programs
T ?= all
S ?= 60
## fuzz target T (all) for S seconds each: make fuzz T=config S=600
fuzz:
	@$(PYTHON) fuzz/fuzz.py $(T) --seconds $(S)

## replay all corpora under gcc's ASan and UBSan, and under Valgrind; ends with `N passed, N failed`
fuzz-replay:
	@$(PYTHON) fuzz/fuzz.py replay --variant asan --valgrind
