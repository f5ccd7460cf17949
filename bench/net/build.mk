# rocelab-sock: TCP and UDP ping-pong and streams. See net/README.md.
NET_SOURCES := $(wildcard common/*.c net/*.c)
PROGRAMS += $(BUILD)/rocelab-sock

$(BUILD)/rocelab-sock: $(NET_SOURCES:%.c=$(BUILD)/%.o)
	$(CC) $(LDFLAGS) -o $@ $^
