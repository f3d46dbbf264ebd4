#include <cstdio>

int main() {
  std::puts("pipewright " PIPEWRIGHT_VERSION);
}
