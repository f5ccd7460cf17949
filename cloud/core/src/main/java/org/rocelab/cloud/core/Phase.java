// Tells rocelab what a program is doing, for readers of its output.
package org.rocelab.cloud.core;

/** The phases of a program: a line on standard output when each begins. */
public final class Phase {
    /** What such a line begins with. */
    public static final String MARK = "rocelab-phase ";

    private Phase() {}

    /** A phase begins; {@code name} is for a person, such as {@code writing 2 files of 256 MiB}. */
    public static void begin(String name) {
        System.out.println(MARK + name);
        System.out.flush();
    }
}
