# rocelab-mpi, once for each MPI: build/openmpi/, build/mpich/ and build/smpi/. See mpi/README.md.
# MPI_PROGRAMS: where `make setup-programs` puts them. smpi is SimGrid's simulation of an MPI, a Debian package.
# Another one: make -C bench MPIS=intel intel_MPICC=...
# (What SimGrid loads has no sanitizers: they must be there from the start of a program.)
MPIS ?= openmpi mpich $(if $(SANITIZE),,smpi)
MPI_PROGRAMS ?= ../.build/programs
openmpi_MPICC ?= $(MPI_PROGRAMS)/openmpi/bin/mpicc
mpich_MPICC ?= $(MPI_PROGRAMS)/mpich/bin/mpicc
smpi_MPICC ?= smpicc
# What there is of them.
MPI_FOUND := $(foreach each,$(MPIS),$(if $(shell command -v $($(each)_MPICC)),$(each)))

MPI_SOURCES := common/clock.c common/failure.c common/number.c common/pattern.c common/stats.c $(wildcard mpi/*.c pt2pt/*.c collective/*.c imb/*.c onesided/*.c mesh/*.c startup/*.c)

define mpi_rules
$(BUILD)/$(1)/rocelab-mpi: $(MPI_SOURCES:%.c=$(BUILD)/$(1)/%.o)
	$$($(1)_MPICC) $$(LDFLAGS) -pthread -o $$@ $$^

$(BUILD)/$(1)/%.o: %.c $(wildcard $($(1)_MPICC))
	@mkdir -p $$(@D)
	$$($(1)_MPICC) $$(CPPFLAGS) $$(CFLAGS) -pthread -MMD -MP -c -o $$@ $$<
endef

$(foreach each,$(MPIS),$(eval $(call mpi_rules,$(each))))

PROGRAMS += $(MPI_FOUND:%=$(BUILD)/%/rocelab-mpi)

.PHONY: mpi-note
all: mpi-note
mpi-note:
	@: $(foreach each,$(filter-out $(MPI_FOUND),$(MPIS)),$(info bench: no rocelab-mpi for $(each): \
	there is no $($(each)_MPICC); make setup installs it))
