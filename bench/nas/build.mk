# rocelab-nas, once for each MPI, as rocelab-mpi is. See nas/README.md.
NAS_SOURCES := common/failure.c common/number.c mpi/world.c $(wildcard nas/*/*.c)

# Measured beside NPB in Fortran. Mathematical functions set no errno, which Fortran does not have
# either, and multiplication and addition are one where the processor can and CFLAGS let it.
# Dimensions of arrays are known at run time (as types behind pointers; there is none on the stack).
NAS_CFLAGS := -O3 -fno-math-errno -ffp-contract=fast -Wno-vla

define nas_rules
$(BUILD)/$(1)/nas/%.o: override CFLAGS += $(NAS_CFLAGS)

$(BUILD)/$(1)/rocelab-nas: $(NAS_SOURCES:%.c=$(BUILD)/$(1)/%.o)
	$$($(1)_MPICC) $$(LDFLAGS) -o $$@ $$^ -lm
endef

$(foreach each,$(MPIS),$(eval $(call nas_rules,$(each))))

PROGRAMS += $(MPI_FOUND:%=$(BUILD)/%/rocelab-nas)
