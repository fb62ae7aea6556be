# The Debian package of all programs, the back end for GPUs where it is built, and both units:  cpack --config build/release/CPackConfig.cmake -B build/package
foreach(program sherd sherd-coordinator sherd-worker)
  install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${program} DESTINATION bin)
endforeach()
# Where the worker looks for it (worker/device/open_device.h). It finds cuBLASLt as the system does.
if(TARGET sherd_cuda)
  install(TARGETS sherd_cuda LIBRARY DESTINATION lib/sherd)
  # So that dpkg-shlibdeps, too, finds what the toolkit brings.
  get_filename_component(cublaslt_directory ${SHERD_CUBLASLT} DIRECTORY)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${cublaslt_directory})
endif()
# Made by the programs themselves, so that they say what is parsed.
foreach(program sherd sherd-coordinator sherd-worker)
  set(page ${CMAKE_BINARY_DIR}/man/${program}.1)
  add_custom_command(OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
    COMMAND ${program} --man > ${page}
    DEPENDS ${program})
  list(APPEND manuals ${page})
endforeach()
# Those of the commands that the worker program has: sherd-sample(1) is what `man sherd sample` finds.
foreach(command sample eval checkpoints import export data)
  set(page ${CMAKE_BINARY_DIR}/man/sherd-${command}.1)
  add_custom_command(OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
    COMMAND sherd-worker ${command} --man > ${page}
    DEPENDS sherd-worker)
  list(APPEND manuals ${page})
endforeach()
set(completion ${CMAKE_BINARY_DIR}/man/sherd.bash)
add_custom_command(OUTPUT ${completion} COMMAND sherd completion bash > ${completion} DEPENDS sherd ${manuals})
add_custom_target(sherd_manuals ALL DEPENDS ${manuals} ${completion})
install(FILES ${manuals} DESTINATION share/man/man1)
install(FILES ${completion} DESTINATION share/bash-completion/completions RENAME sherd)
set(units ${PROJECT_SOURCE_DIR}/deploy/systemd)
install(FILES ${units}/sherd-coordinator.service ${units}/sherd-worker.service DESTINATION lib/systemd/system)
install(FILES ${units}/sherd.sysusers DESTINATION lib/sysusers.d RENAME sherd.conf)
install(FILES ${units}/sherd.tmpfiles DESTINATION lib/tmpfiles.d RENAME sherd.conf)
install(FILES ${units}/coordinator.env ${units}/worker.env DESTINATION /etc/sherd)
install(FILES ${PROJECT_SOURCE_DIR}/examples/fortunes.yaml DESTINATION share/doc/sherd/examples)
install(FILES ${PROJECT_SOURCE_DIR}/docs/operations.md DESTINATION share/doc/sherd)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sherd)
set(CPACK_PACKAGE_CONTACT "The Sherd authors <sherd@example.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains transformer language models across many workers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# What the libraries of the programs are in; dpkg-shlibdeps finds them.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${units}/postinst ${units}/prerm ${units}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
