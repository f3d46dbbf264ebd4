#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <new>

#include <nanobind/nanobind.h>

#include "core/check.hpp"
#include "core/check_handler.hpp"
#include "core/ending.hpp"
#include "core/plain_words.hpp"
#include "python/question.hpp"

namespace pipewright::python {
namespace {

namespace nb = nanobind;

std::atomic<int> interrupts{0};
struct sigaction before_us {};

void take_interrupt(int signal) {
  ++interrupts;
  ask_to_end(signal);
}

// An instance of a class of pipewright/_errors.py becomes the error that Python has.
void set_error(const char* name, const nb::object& argument) {
  const nb::object type = nb::module_::import_("pipewright._errors").attr(name);
  const nb::object error = type(argument);
  PyErr_SetObject(type.ptr(), error.ptr());
}

nb::object text_of(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

nb::object faults_of(const InputError& error) {
  nb::list faults;
  for (const Fault& fault : error.faults())
    faults.append(nb::make_tuple(text_of(fault.place.file), fault.place.line, fault.place.column, text_of(fault.key),
                                 text_of(fault.text)));
  return faults;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InputError& error) {
    set_error("InputError", faults_of(error));
  } catch (const Interrupted& error) {
    PyErr_SetString(PyExc_KeyboardInterrupt, error.what());
  } catch (const CheckFailed& error) {
    set_error("InternalError", text_of(error.what()));
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::runtime_error& error) {
    set_error("Error", text_of(plain_words(error)));
  }
}

}  // namespace

CtrlC::CtrlC(bool taken) : taken_(taken) {
  if (!taken_) return;
  interrupts = 0;
  struct sigaction ours {};
  ours.sa_handler = take_interrupt;
  sigemptyset(&ours.sa_mask);
  taken_ = sigaction(SIGINT, &ours, &before_us) == 0;
}

CtrlC::~CtrlC() {
  if (!taken_) return;
  sigaction(SIGINT, &before_us, nullptr);
  if (interrupts > 0) ask_to_end(0);
  if (interrupts > 1) PyErr_SetInterrupt();
}

bool CtrlC::asked() const {
  return taken_ && interrupts > 0;
}

void CtrlC::raise() const {
  interrupts = std::min<int>(interrupts, 1);
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw nb::python_error();
}

void translate_errors() {
  nb::register_exception_translator(translate);
}

}  // namespace pipewright::python
