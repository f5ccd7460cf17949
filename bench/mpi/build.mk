# rocelab-mpi, once for each MPI: build/openmpi/ and build/mpich/. See mpi/README.md.
# MPI_PROGRAMS: where `make setup-programs` puts the MPIs. Another one: make -C bench build/NAME/rocelab-mpi NAME_MPICC=...
MPI_PROGRAMS ?= ../.build/programs
openmpi_MPICC ?= $(MPI_PROGRAMS)/openmpi/bin/mpicc
mpich_MPICC ?= $(MPI_PROGRAMS)/mpich/bin/mpicc

MPI_SOURCES := common/clock.c common/failure.c common/pattern.c common/stats.c $(wildcard mpi/*.c pt2pt/*.c collective/*.c imb/*.c onesided/*.c mesh/*.c startup/*.c)

define mpi_rules
$(BUILD)/$(1)/rocelab-mpi: $(MPI_SOURCES:%.c=$(BUILD)/$(1)/%.o)
	$$($(1)_MPICC) $$(LDFLAGS) -pthread -o $$@ $$^

$(BUILD)/$(1)/%.o: %.c $(wildcard $($(1)_MPICC))
	@mkdir -p $$(@D)
	$$($(1)_MPICC) $$(CPPFLAGS) $$(CFLAGS) -pthread -MMD -MP -c -o $$@ $$<
endef

$(foreach each,openmpi mpich,$(eval $(call mpi_rules,$(each))))

MPI_FOUND := $(foreach each,openmpi mpich,$(if $(wildcard $($(each)_MPICC)),$(each)))
PROGRAMS += $(MPI_FOUND:%=$(BUILD)/%/rocelab-mpi)

.PHONY: mpi-note
all: mpi-note
mpi-note:
	$(foreach each,$(filter-out $(MPI_FOUND),openmpi mpich),@echo "bench: no rocelab-mpi for $(each): \
	there is no $($(each)_MPICC); make setup-programs installs it")
