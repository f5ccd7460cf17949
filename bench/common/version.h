/* The version of all parts of this project: these programs, urxe and rocelab. A test holds them
 * together. */
#pragma once

#define ROCELAB_VERSION "0.2.0"
