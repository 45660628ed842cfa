# The wrong engines. Included by ../Makefile.
.PHONY: mutants mutants-matrix mutants-write
## judge the named wrong engines: each must be caught by its named test (MUTANTS='s03 x12', JOBS=2)
mutants: all
	@$(PYTHON) mutants/mutants.py $(MUTANTS) -j $(or $(JOBS),$(shell nproc))

## every named wrong engine against all 24 tests, with reports below build/mutants/
mutants-matrix: all
	@$(PYTHON) mutants/mutants.py all --matrix --corpus -j $(or $(JOBS),$(shell nproc)) \
	  --report json:build/mutants/matrix.json --report html:build/mutants/mutants.html --report stryker:build/mutants/stryker.json --report text

## make mutants/fingerprints.json and conformance/proofs.json anew from the matrix
mutants-write: all
	@$(PYTHON) mutants/mutants.py write -j $(or $(JOBS),$(shell nproc))
